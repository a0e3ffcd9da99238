#!/bin/bash
# One of the best programs that we know; {{puzzle}}.py beside it is the one that the notebook explains.
cp /solution/best.py {{answer}}
