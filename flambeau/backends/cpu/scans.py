"""CPU kernels: scans."""
