"""Where is a run recorded?"""
