"""Notifications by webhook, chat and e-mail: allowed addresses, message texts and delivery."""
