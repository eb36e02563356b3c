"""What `tasks.data_report` is made of: the page, its pictures and charts, and drift between revisions."""
