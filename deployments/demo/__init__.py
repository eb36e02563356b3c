"""The demonstration: sample plates, the model that learns them, and the page that shows what came out."""
