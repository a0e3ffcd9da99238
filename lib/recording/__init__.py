"""What a function has called, as plain data: recorded beside the learner's code, replayed where it is judged.

========  ======================================================================
wire      one message a line, with limits
safe      errors as plain data, and texts from elsewhere that are safe to show
verbs     every call that changes a run, and the kinds of its arguments
replay    carries calls out on a simulator of its own, and believes nothing else
diary     where each call was written, and what dictionaries did, for who explains a run
recorder  a simulator that writes down each call that it carries out
========  ======================================================================
"""
