"""What talks to a server from outside: the load generator (`bench`) and the observer (`attach`)."""
