"""How is a draft head or a draft model made for a target?"""
