"""What programs are made of that PyTorch has no words for."""
