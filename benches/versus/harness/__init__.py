"""What the commands of this folder share: processes, peers, rows, load, reports."""
