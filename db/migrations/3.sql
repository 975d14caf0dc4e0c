-- Version 3: accounts, sessions and keys; what a restore left behind.

