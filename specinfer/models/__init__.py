"""Where does a target come from, and how does it read the paged cache?"""
