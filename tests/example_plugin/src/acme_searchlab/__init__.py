"""What acme has for searchlab."""
