"""The dashboard as JSON that Grafana can import. All functions are pure."""

from typing import Any

from infra.monitoring.panels import ROWS, Panel

TITLE, UID = "disttrain", "disttrain-runs"
_COLUMNS = 24  # the width of Grafana's grid
_PANEL_WIDTH, _PANEL_HEIGHT = 8, 8
_NUMBER_WIDTH, _NUMBER_HEIGHT = 6, 4
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """The dashboard: all panels in rows, and menus for data source, namespace and run."""
    return {
        "title": TITLE,
        "uid": UID,
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "tags": ["disttrain"],
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                _choice("namespace", "label_values(disttrain_info, namespace)"),
                _choice("run", 'label_values(disttrain_info{namespace=~"$namespace"}, run)'),
            ]
        },
        "panels": _panels(),
    }


def _panels() -> list[dict[str, Any]]:
    found, y = list[dict[str, Any]](), 0
    for title, row in ROWS:
        position = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
        found.append({"id": len(found) + 1, "type": "row", "title": title, "gridPos": position})
        x, y = 0, y + 1
        width, height = _size(row[0])
        for panel in row:
            if x + width > _COLUMNS:
                x, y = 0, y + height
            position = {"x": x, "y": y, "w": width, "h": height}
            found.append(_panel(panel, len(found) + 1, position))
            x += width
        y += height
    return found


def _size(panel: Panel) -> tuple[int, int]:
    if panel.is_number:
        return _NUMBER_WIDTH, _NUMBER_HEIGHT
    return _PANEL_WIDTH, _PANEL_HEIGHT


def _panel(panel: Panel, number: int, position: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "stat" if panel.is_number else "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + position),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend,
            }
            for position, (expression, legend) in enumerate(panel.queries)
        ],
    }


def _choice(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
