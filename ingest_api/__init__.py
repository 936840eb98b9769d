"""The broker: accepts messages over HTTP, hands them to the store, answers when they are as safe as asked.

``app.create_app(broker)`` builds the application, ``broker.Broker`` owns what it works with, and
``server.serve`` runs both. The path of a message is send.py -> store -> flush_wait.py.
"""
