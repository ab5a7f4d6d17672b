"""How a query reads: strategies over the ports, and pure scoring."""
