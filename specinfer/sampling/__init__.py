"""What is the target's exact law at a position, and how is a token drawn from it?"""
