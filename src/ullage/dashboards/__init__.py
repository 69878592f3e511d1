"""Dashboards for Grafana: a file each, which says what its panels show; one module writes them as Grafana reads them."""
