"""The page at `/`: what the service offers, to read and to try.

BentoML's own page loads a tag manager and badges from the internet. This one shows our description with the assets that
BentoML ships, and the browser is told to load nothing from elsewhere.
"""

from __future__ import annotations

from fastapi import FastAPI
from starlette.responses import HTMLResponse, Response

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Passline inspection</title>
<link rel="stylesheet" href="./static_content/swagger-ui.css">
<link rel="icon" href="data:,">
</head>
<body>
<div id="swagger-ui"></div>
<script src="./static_content/swagger-ui-bundle.js" charset="utf-8"></script>
<script src="./api-page.js" charset="utf-8"></script>
</body>
</html>
"""
SCRIPT = """window.ui = SwaggerUIBundle({
  url: "./openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis],
});
"""
POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:"
DESCRIPTION = """A picture of a part in, a verdict with boxes out.

Every answer names the release that gave it. Errors are problem details (RFC 9457) with the request id that the log
knows. `/metrics` answers Prometheus.
"""


def add_api_page(app: FastAPI) -> None:
    """Add the page and its script."""

    @app.get("/", include_in_schema=False)
    async def _page() -> Response:
        return HTMLResponse(PAGE, headers={"Content-Security-Policy": POLICY})

    @app.get("/api-page.js", include_in_schema=False)
    async def _script() -> Response:
        return Response(SCRIPT, media_type="text/javascript")
