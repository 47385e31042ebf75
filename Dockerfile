# mmcluspro in a container: the command line, the demo and the export.
#   docker build -t mmcluspro .
#   docker build -t mmcluspro:cuda --build-arg BASE=nvidia/cuda:12.4.1-runtime-ubuntu22.04 .
#   docker run --rm -v "$PWD:/work" mmcluspro train photos/
#   docker run --rm --gpus all -v "$PWD:/work" mmcluspro:cuda train photos/
#   docker run --rm -p 127.0.0.1:7860:7860 mmcluspro demo --host 0.0.0.0
# The tag receives security fixes; for the same image again, name it by its digest:
#   docker pull ubuntu:22.04 && docker inspect --format '{{index .RepoDigests 0}}' ubuntu:22.04
#   docker build -t mmcluspro --build-arg BASE=ubuntu@sha256:... .
ARG BASE=ubuntu:22.04
FROM ${BASE}

# OpenCV needs libGL and GLib.
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv libgl1 libglib2.0-0 \
    && rm -rf /var/lib/apt/lists/*

ENV PATH=/opt/venv/bin:$PATH PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1
RUN python3 -m venv /opt/venv && pip install --upgrade pip

# Other builds of torch: --build-arg TORCH="torch==2.10.0 torchvision".
ARG TORCH="torch torchvision"
RUN pip install ${TORCH}

COPY pyproject.toml setup.py README.md LICENSE MANIFEST.in model-index.yml /src/
COPY mmcluspro /src/mmcluspro
COPY configs /src/configs
COPY tools /src/tools
RUN pip install '/src[mm,demo,export,viz]' && rm -rf /src

RUN useradd --create-home --uid 1000 user
USER user
WORKDIR /work
EXPOSE 7860
ENTRYPOINT ["mmcluspro"]
CMD ["--help"]
