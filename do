#!/usr/bin/env bash
# The only script a newcomer needs. Installs what is missing (Debian and its relatives), builds, runs.
#
#   ./do report [options]   health report of the recorded model: table here, pictures in report.html
#   ./do test [--all]       every test; --all adds sanitizers, clang, NEON, fuzzers, sweeps, counts
#   ./do bench [options]    speed of this machine in percent of its limit
#   ./do peers [options]    poise and other engines timed in one run (bench/peers)
#   ./do build              the library and the command, in build/release
#   ./do format             clang-format on every source file
#   ./do lint               include law, file rules, clang-tidy
#
# Must not happen here: downloads other than through apt-get (and pip, for what ./do peers compares
# with, what the Python tests import and what drives the browser), anything written outside build/
# except report.html.
set -euo pipefail
readonly kCaller=$PWD
cd "$(dirname "$0")"
export DEBIAN_FRONTEND=noninteractive

readonly kLog=build/do.log
readonly kBuildPackages="g++ cmake ninja-build libtbb-dev nlohmann-json3-dev zlib1g-dev libcli11-dev
  libeigen3-dev"
readonly kTestPackages="$kBuildPackages libgtest-dev librapidcheck-dev python3"
readonly kArmPackages="libtbb12 libtbbbind-2-5 libtbbmalloc2 libtbb-dev nlohmann-json3-dev
  zlib1g-dev libcli11-dev libeigen3-dev libgtest-dev librapidcheck-dev"
# Tests of label per_isa that are not for an emulator of the user mode: the truth of the first takes it too
# long (long double, which AArch64 has in software only), it follows neither a child that starts threads
# nor a program that starts itself again.
readonly kNotEmulated='^accuracy\.f64_|forked|^Limits\.read_every_page'
# The thread sanitizer starts no threads in a forked child and cannot see how a host's own oneTBB loop waits
# for its threads. How exact one thread computes is no business of it, and takes it long.
readonly kNotThreadSanitized='forked|tbb_loop|accuracy'

readonly kBrowserTests="the report's page in a browser (tests/browser)"

say() { printf '%s\n' "$@" >&2; }
die() {
  say "./do: $*"
  exit 1
}

# The command a package is wanted for; packages that bring headers only have none.
command_of() {
  case $1 in
    g++) echo g++ ;;
    cmake) echo cmake ;;
    ninja-build) echo ninja ;;
    pkg-config) echo pkg-config ;;
    python3) echo python3 ;;
    clang) echo clang++ ;;
    clang-format) echo clang-format ;;
    clang-tidy) echo clang-tidy ;;
    g++-aarch64-linux-gnu) echo aarch64-linux-gnu-g++ ;;
    qemu-user) echo qemu-aarch64 ;;
    valgrind) echo valgrind ;;
    chromium) echo chromium ;;
  esac
}

is_installed() {
  local wanted
  wanted=$(command_of "$1")
  if [ -n "$wanted" ] && command -v "$wanted" >/dev/null; then return 0; fi
  command -v dpkg-query >/dev/null &&
    dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'
}

# Installs the packages among the arguments that are missing.
need() {
  local package as_root="" missing=()
  for package in "$@"; do is_installed "$package" || missing+=("$package"); done
  [ ${#missing[@]} -eq 0 ] && return 0
  if ! command -v apt-get >/dev/null; then
    # Another system: its package manager may have brought the headers, which CMake will find out.
    for package in "${missing[@]}"; do
      [ -z "$(command_of "$package")" ] ||
        die "$(command_of "$package") is missing and there is no apt-get here; install it, and what" \
          "these Debian packages bring: ${missing[*]}"
    done
    return 0
  fi
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      die "these packages are missing, and installing them takes root or sudo:" \
        "apt-get install ${missing[*]}"
    as_root="sudo"
    [ -t 0 ] || as_root="sudo -n"
  fi
  say "installing ${missing[*]}"
  # Package lists may be absent (a container image) or old, so they are fetched when apt cannot do
  # without.
  # shellcheck disable=SC2086  # as_root is a command with its option, or nothing
  if ! quietly $as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}"; then
    quietly $as_root env DEBIAN_FRONTEND=noninteractive apt-get update &&
      quietly $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "${missing[@]}" ||
      failed "installing ${missing[*]} did not work"
  fi
}

# Runs a command with its output in the log.
quietly() {
  mkdir -p build
  printf '\n$ %s\n' "$*" >>"$kLog"
  "$@" >>"$kLog" 2>&1 </dev/null
}

failed() {
  tail -n 40 "$kLog" >&2
  die "$* (the whole log: $kLog)"
}

# Configures and builds a preset: build PRESET TARGET [cmake options].
build() {
  local preset=$1 target=$2
  shift 2
  # A build directory that another checkout or generator left behind cannot be configured again.
  if [ -f "build/$preset/CMakeCache.txt" ] &&
    ! grep -qx "CMAKE_HOME_DIRECTORY:INTERNAL=$(pwd -P)" "build/$preset/CMakeCache.txt"; then
    rm -rf "build/$preset"
  fi
  if command -v ccache >/dev/null; then set -- "$@" -DCMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
  quietly cmake --preset "$preset" "$@" || failed "configuring build/$preset failed"
  if [ -t 2 ] && [ -t 1 ]; then
    cmake --build "build/$preset" --target "$target" >&2 || die "building build/$preset failed"
  else
    quietly cmake --build "build/$preset" --target "$target" || failed "building build/$preset failed"
  fi
}

# Runs a program of build/release where the caller stands, who may name files relative to that.
for_caller() {
  local program=$PWD/build/release/$1
  shift
  (cd "$kCaller" && exec "$program" "$@")
}

# ---- Python --------------------------------------------------------------------------------------
# Says why the Python tests are left out; nothing when they are to run. They need packages from PyPI,
# so somebody who builds the library alone is spared them: they run where torch is installed already,
# in continuous integration, with --all, and where an earlier run has made their environment.
python_left_out() {
  [ "$1" -eq 1 ] || [ "${CI:-}" = true ] || [ -x build/python/venv/bin/python ] ||
    python3 -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' ||
    echo "no torch here and CI is not true; ./do test --all installs what they need"
}

# The environment of the Python tests, which follows the pinned versions: install_python ALL
install_python() {
  local environment=build/python/venv list=build/python/wanted.txt
  local files=(python/requirements-test.txt python/requirements-frameworks.txt)
  [ "$1" -eq 0 ] || files+=(python/requirements-all.txt)
  python3 -c 'import ensurepip, os, sys, sysconfig, venv
header = os.path.join(sysconfig.get_path("include"), "Python.h")
sys.exit(not os.path.exists(header))' 2>/dev/null || need python3-venv python3-dev
  mkdir -p build/python
  cat "${files[@]}" >"$list"
  cmp -s "$list" "$environment/installed.txt" && return 0
  # What a run of --all installed serves the plain one.
  if [ "$1" -eq 0 ] && cat "${files[@]}" python/requirements-all.txt |
    cmp -s - "$environment/installed.txt"; then return 0; fi
  say "installing what the Python tests need from PyPI into $environment"
  quietly python3 -m venv --clear "$environment" || failed "making $environment failed"
  local file
  for file in "${files[@]}"; do
    quietly "$environment/bin/pip" install -r "$file" || failed "installing $file failed"
  done
  cp "$list" "$environment/installed.txt"
}

# run_pytest [pytest options]: the Python tests on the package of build/dev.
run_pytest() {
  local root=$PWD results=$PWD/build/python/results.xml
  rm -f "$results"
  (cd python/tests && PYTHONPATH=$root/build/dev/python PYTHONDONTWRITEBYTECODE=1 \
    "$root/build/python/venv/bin/python" -m pytest -q -p no:cacheprovider \
    --junitxml="$results" "$@") || broken=1
  if [ -f "$results" ]; then count_junit "$results"; else failures=$((failures + 1)); fi
}

# ---- tests ---------------------------------------------------------------------------------------
passed=0 failures=0 skipped=0 broken=0

# Adds what ctest or pytest wrote to a JUnit file to the counts: ctest registers every GoogleTest case
# as a test of its own.
count_junit() {
  local counts
  counts=$(python3 - "$1" <<'PYTHON'
import sys
import xml.etree.ElementTree

root = xml.etree.ElementTree.parse(sys.argv[1]).getroot()
suites = [root] if root.tag == "testsuite" else root.findall("testsuite")
total, failed, errors, skipped, disabled = (
    sum(int(suite.get(name, 0)) for suite in suites)
    for name in ("tests", "failures", "errors", "skipped", "disabled"))
failed += errors
print(total - failed - skipped - disabled, failed, skipped + disabled)
PYTHON
  ) || counts="0 1 0"
  set -- $counts
  passed=$((passed + $1)) failures=$((failures + $2)) skipped=$((skipped + $3))
}

# run_ctest PRESET [ctest options]
run_ctest() {
  local directory=build/$1 results=build/$1/results.xml
  shift
  rm -f "$results"
  ctest --test-dir "$directory" --output-on-failure --no-tests=error --parallel "$(nproc)" \
    --output-junit "$PWD/$results" "$@" || broken=1
  if [ -f "$results" ]; then count_junit "$results"; else failures=$((failures + 1)); fi
}

# One step that is a test by itself: step NAME COMMAND... Exit code 77 means skipped, and the last
# line that the command printed says why.
step() {
  local name=$1 code=0
  shift
  quietly "$@" || code=$?
  case $code in
    0)
      say "passed: $name"
      passed=$((passed + 1))
      ;;
    77)
      say "skipped: $name ($(tail -n 1 "$kLog"))"
      skipped=$((skipped + 1))
      ;;
    *)
      tail -n 40 "$kLog" >&2
      say "FAILED: $name"
      failures=$((failures + 1))
      ;;
  esac
}

# Unpacks the arm64 packages that build/neon links into build/neon-packages. They are not installed:
# that would add an architecture to this machine and replace packages of its own. apt-get keeps lists
# and archives for it in a directory of their own, which also needs no root.
fetch_arm_packages() {
  local into=$PWD/build/neon-packages work=$PWD/build/neon-download package
  [ -e "$into/complete" ] && return 0
  rm -rf "$into" "$work"
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
  local arm=(apt-get -o APT::Architecture=arm64 -o APT::Architectures::=arm64
    -o APT::Sandbox::User=root -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache"
    -o Dir::State::status=/dev/null)
  quietly "${arm[@]}" update || return 1
  # shellcheck disable=SC2086  # a list of words
  quietly env -C "$work" "${arm[@]}" download $kArmPackages || return 1
  for package in "$work"/*.deb; do dpkg -x "$package" "$into" || return 1; done
  rm -rf "$work"
  touch "$into/complete"
}

# The NEON kernels, cross-compiled, under an emulator of the user mode of Linux on AArch64.
run_neon_tests() {
  if [ "$(uname -m)" = aarch64 ]; then
    say "NEON: this machine's own, tested in build/dev"
    return
  fi
  if ! command -v apt-get >/dev/null; then
    say "NEON: left out, it takes Debian's cross compiler and packages"
    skipped=$((skipped + 1))
    return
  fi
  need g++-aarch64-linux-gnu qemu-user
  fetch_arm_packages || failed "fetching the arm64 packages did not work"
  say "NEON, cross-compiled, under qemu-user (build/neon): label per_isa. Left out: label slow and" \
    "$kNotEmulated (their time, other processes), cases that start processes, other labels (nothing of an" \
    "instruction set in them)"
  build neon all
  run_ctest neon -L per_isa -LE slow -E "$kNotEmulated"
}

# The browser tests in an environment of their own that follows the pinned versions. Made on request
# (./do test --all, CI=true), used wherever it is.
browser_tests() {
  local all=$1 wanted=tests/browser/requirements.txt environment=build/browser/venv
  if [ "$all" -eq 0 ] && [ "${CI:-}" != true ]; then
    if ! command -v chromium >/dev/null; then
      echo "no chromium here; ./do test --all installs it"
      return 77
    fi
    if ! cmp -s "$wanted" "$environment/installed.txt"; then
      echo "no build/browser/venv of these versions; ./do test --all makes it from PyPI"
      return 77
    fi
  fi
  if ! cmp -s "$wanted" "$environment/installed.txt"; then
    mkdir -p build/browser
    python3 -m venv --clear "$environment" && "$environment/bin/pip" install -r "$wanted" || return 1
    cp "$wanted" "$environment/installed.txt"
  fi
  mkdir -p build/browser/pages
  build/dev/tests/poise_sample_pages build/browser/pages &&
    "$environment/bin/python" tests/browser/page_test.py build/browser/pages
}

summary() {
  local line="$passed passed, $failures failed"
  [ "$skipped" -eq 0 ] || line="$line, $skipped skipped"
  echo "$line"
  [ "$failures" -eq 0 ] && [ "$broken" -eq 0 ] && [ "$passed" -gt 0 ]
}

run_tests() {
  local all=0 fuzzer format
  case "${1:-}" in
    "") ;;
    --all) all=1 ;;
    *) usage "unknown option '$1'" ;;
  esac
  # shellcheck disable=SC2086  # a list of words
  need $kTestPackages
  if [ "$all" -eq 1 ] || [ "${CI:-}" = true ]; then need chromium python3-venv; fi
  if [ "$all" -eq 1 ]; then
    need clang
    # The sanitizers and the fuzzer of clang, which its package only recommends.
    need "libclang-rt-$(clang++ -dumpversion | cut -d. -f1)-dev"
  fi
  local python_options=(-DPOISE_BUILD_PYTHON=OFF) why_not
  why_not=$(python_left_out "$all")
  if [ -z "$why_not" ]; then
    install_python "$all"
    python_options=(-DPOISE_BUILD_PYTHON=ON
      "-DPython_EXECUTABLE=$PWD/build/python/venv/bin/python")
  fi
  say "building the tests (build/dev)"
  build dev all "${python_options[@]}"
  if [ "$all" -eq 0 ]; then
    run_ctest dev -LE slow
    if [ -z "$why_not" ]; then run_pytest -m "not slow"; else say "Python: skipped ($why_not)"; fi
    step "$kBrowserTests" browser_tests "$all"
    summary
    return
  fi
  run_ctest dev
  run_pytest
  step "$kBrowserTests" browser_tests "$all"

  # Not in the plain run: it takes valgrind and a release build, which the tests do without.
  say "instruction counts (build/release)"
  need valgrind
  build release poise_one_call -DPOISE_BUILD_BENCH=ON
  step "instruction counts are at most 3 % above bench/callgrind/baseline.json" \
    python3 bench/callgrind/count.py build/release/bench/poise_one_call

  say "address and undefined-behaviour sanitizers (build/asan)"
  build asan all
  run_ctest asan -LE 'slow|lint|install'
  say "thread sanitizer (build/tsan)"
  build tsan all
  run_ctest tsan -L 'laws|per_isa' -LE slow -E "$kNotThreadSanitized"
  say "clang (build/clang)"
  build clang all -DPOISE_BUILD_FUZZERS=ON
  run_ctest clang -LE 'slow|lint|install'
  run_neon_tests
  for fuzzer in build/clang/tests/fuzz/*_fuzz; do
    [ -x "$fuzzer" ] || continue
    format=$(basename "$fuzzer" _fuzz)
    mkdir -p "build/corpus/$format"
    step "fuzz the $format reader for 60 s" "$fuzzer" -max_total_time=60 -rss_limit_mb=2048 \
      "build/corpus/$format" "tests/fuzz/seeds/$format"
  done
  summary
}

# ---- peers ---------------------------------------------------------------------------------------
# The engines poise is compared with, in an environment of their own that follows the pinned versions.
install_peers() {
  local wanted=bench/peers/requirements.txt environment=build/peers/venv
  cmp -s "$wanted" "$environment/installed.txt" && return 0
  say "installing the peers from PyPI into $environment (gigabytes where torch brings CUDA)"
  mkdir -p build/peers
  quietly python3 -m venv --clear "$environment" &&
    quietly "$environment/bin/pip" install -r "$wanted" || failed "installing the peers failed"
  cp "$wanted" "$environment/installed.txt"
}

run_peers() {
  local root=$PWD
  # shellcheck disable=SC2086  # a list of words
  need $kBuildPackages libopenblas-dev pkg-config python3 python3-venv
  install_peers
  build release peers_workers -DPOISE_BUILD_BENCH=ON
  (cd "$kCaller" && exec "$root/build/peers/venv/bin/python" "$root/bench/peers/run.py" \
    --workers "$root/build/release/bench/peers" --work "$root/build/peers" "$@")
}

# ---- verbs ---------------------------------------------------------------------------------------
usage() {
  [ $# -eq 0 ] || say "./do: $*"
  sed -n '4,10s/^# *//p' "$0" >&2
  exit 2
}

verb=${1:-}
[ $# -eq 0 ] || shift
case $verb in
  report)
    # shellcheck disable=SC2086  # a list of words
    need $kBuildPackages
    [ -x build/release/cli/poise ] || say "building (about two minutes the first time)"
    build release poise_cli
    case " $* " in
      *" --html"* | *" --help "* | *" -h "*) for_caller cli/poise report "$@" ;;
      *)
        page=$PWD/report.html
        [ "$kCaller" -ef . ] && page=report.html  # the page shows its command: short is nicer
        for_caller cli/poise report --html "$page" "$@"
        say "" "pictures: $PWD/report.html"
        ;;
    esac
    ;;
  test) run_tests "$@" ;;
  bench)
    # shellcheck disable=SC2086  # a list of words
    need $kBuildPackages
    build release poise_bench -DPOISE_BUILD_BENCH=ON
    for_caller bench/poise_bench "$@"
    ;;
  peers) run_peers "$@" ;;
  build)
    # shellcheck disable=SC2086  # a list of words
    need $kBuildPackages
    build release all
    say "the command: build/release/cli/poise"
    ;;
  format)
    need clang-format
    find include src cli python tests bench examples -name '*.h' -o -name '*.cpp' -o -name '*.inl' |
      xargs clang-format -i
    ;;
  lint)
    # shellcheck disable=SC2086  # a list of words
    need $kTestPackages clang-tidy
    python3 tools/lint_includes.py
    build dev all
    find src cli -name '*.cpp' -not -path 'src/isa/*' -print0 |
      xargs -0 -n 4 -P "$(nproc)" clang-tidy -p build/dev --quiet
    ;;
  "" | help | -h | --help) usage ;;
  *) usage "unknown verb '$verb'" ;;
esac
