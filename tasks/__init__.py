"""One module per step: its configuration, its pure functions, and a thin Prefect task around them."""
