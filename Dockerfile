# The program in a small image. It needs BuildKit: Docker 23, or DOCKER_BUILDKIT=1 before that.
#   docker build -t fabro .
#   docker run --rm -it --user "$(id -u):$(id -g)" -v "$PWD:/project" fabro run hello
# --user makes the files of a run yours; without it the user is 1000, who must own the folder.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package fabro-cli && cp target/release/fabro /usr/local/bin/fabro

FROM debian:bookworm-slim
# Scripts of workflows need a shell, git and Python; sandboxes need bubblewrap.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bash bubblewrap ca-certificates git python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 fabro
COPY --from=build /usr/local/bin/fabro /usr/local/bin/fabro
COPY LICENSE-MIT LICENSE-APACHE /usr/share/doc/fabro/
USER fabro
WORKDIR /project
ENTRYPOINT ["fabro"]
CMD ["--help"]
