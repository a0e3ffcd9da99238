# Where the answer is graded. Everything belongs to root, and the grader is run by a user who can change none of it.
FROM {{image}}
RUN useradd --system --no-create-home --shell /usr/sbin/nologin grader
COPY course.tar.gz /tmp/
RUN mkdir /opt/llm-training-puzzles && tar -xzf /tmp/course.tar.gz -C /opt/llm-training-puzzles && rm /tmp/course.tar.gz
COPY test.sh verify.py /tests/
