# Where the answer is written: Python, the simulated machine with its grader, and a blank function. No solutions.
FROM {{image}}
ADD course.tar.gz /opt/llm-training-puzzles/
ENV PYTHONPATH=/opt/llm-training-puzzles
WORKDIR /app
COPY {{puzzle}}.py /app/
