"""The memory as tools of agents, by the Model Context Protocol."""
