# Where the answer is written: Python, the simulated machine with its grader, and a blank function. No solutions.
FROM {{image}}
COPY course.tar.gz /tmp/
RUN mkdir /opt/llm-training-puzzles && tar -xzf /tmp/course.tar.gz -C /opt/llm-training-puzzles && rm /tmp/course.tar.gz
ENV PYTHONPATH=/opt/llm-training-puzzles
WORKDIR /app
COPY {{puzzle}}.py /app/
