"""What `tasks.dataset_repo` is made of: the layout on disk, git and DVC, objects and remotes, pinned copies."""
