"""One file a study, with another of special measures where it needs one."""
