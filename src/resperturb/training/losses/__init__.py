"""One module per loss; importing it registers the loss."""
