# Where the answer is graded. Everything belongs to root, and the grader is run by a user who can change none of it.
FROM {{image}}
RUN useradd --system --no-create-home --shell /usr/sbin/nologin grader
ADD course.tar.gz /opt/llm-training-puzzles/
COPY test.sh verify.py /tests/
