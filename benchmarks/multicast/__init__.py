"""Parts of the row `multicast`: a network with loss, meshes on it, their load, and NORM beside."""
