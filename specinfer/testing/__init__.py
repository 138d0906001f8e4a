"""How is a plugin tried without a real model, and how is its output law proven?"""
