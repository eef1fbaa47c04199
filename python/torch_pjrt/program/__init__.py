"""Parts of programs that PyTorch has no counterpart for, shared by ``capture``, ``dynamo`` and ``files``."""
