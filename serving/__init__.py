"""What ships to the inference host. Never imports torch, ultralytics, prefect, mlflow or dvc."""
