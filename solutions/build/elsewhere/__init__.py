"""The course in other places than a clone: ``make colab``, ``make lite`` and ``make site``.

colab_cell  the code of the cell that brings the project along
colab       notebooks that need nothing around them
wheels      Pyodide, and the wheels that the course in the browser needs
lite        a site that plays the puzzles in the browser alone
site        the gallery, the course in the browser and the docs as one site
"""
