# The demo in a container: docker build -t resperturb . && docker run --rm -v "$PWD/runs:/resperturb/runs" resperturb
FROM python:3.11-slim
WORKDIR /resperturb
ENV PIP_NO_CACHE_DIR=1 PIP_CONSTRAINT=/resperturb/constraints.txt PIP_BUILD_CONSTRAINT=/resperturb/constraints.txt
# torch goes first and from the constraints: an unpinned torch may pull gigabytes of another build.
COPY constraints.txt .
RUN pip install torch
COPY pyproject.toml README.md LICENSE ./
COPY tools tools
COPY src src
RUN pip install '.[train]'
ENTRYPOINT ["resperturb"]
CMD ["demo"]
