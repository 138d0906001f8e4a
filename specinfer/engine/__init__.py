"""How does one step turn scheduled requests into committed tokens?"""
