"""What `tasks.validate` is made of: rules in Great Expectations, facts that they need, findings, quarantine."""
