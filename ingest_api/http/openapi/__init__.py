"""The OpenAPI document and the page that shows it.

document.py  completes what FastAPI derives; examples.py and problems.py are what it adds
page.py      the page
"""
