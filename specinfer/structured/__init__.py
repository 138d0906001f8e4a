"""How does an output get the form that was asked for?

Forms become specs of grammars (specs, limits), a backend is chosen that means the same (audit) and compiles them beside
the step loop (manager, compiling); a compiled grammar and the draft give bitmasks (constraint), and these restrict the
target's law. Always true: a row that has a grammar is masked or its request fails; nothing goes through unmasked.
"""
