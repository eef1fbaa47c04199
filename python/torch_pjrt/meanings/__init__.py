"""What groups of calls mean: composites in a program's text, which compilers and kernels know by their names."""
