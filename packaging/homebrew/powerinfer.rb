# `make recipes` fills in @...@. The program has never run on macOS, so Homebrew installs on
# Linux only.
class Powerinfer < Formula
  desc "Run large language models on ordinary machines"
  homepage "@HOMEPAGE@"
  url "@URL@/powerinfer-@VERSION@.tar.gz"
  sha256 "@SOURCE_SHA256@"
  license all_of: ["MIT", "CC0-1.0"]

  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "pkgconf" => :build
  depends_on "curl"
  depends_on "jansson"
  depends_on "libedit"
  depends_on "libmicrohttpd"
  depends_on "liburing"
  depends_on :linux
  depends_on "pcre2"
  depends_on "utf8proc"

  def install
    args = %w[-DPI_TESTS=OFF -DPI_CUDA=off -DPI_HIP=off]
    system "cmake", "-S", ".", "-B", "build", "-G", "Ninja", *args, *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
  end

  test do
    text = shell_output("#{bin}/powerinfer run -q -p 'The old lighthouse keeper' -n 5 --temp 0")
    refute_empty text.strip
    assert_match version.to_s, shell_output("#{bin}/powerinfer --version")
  end
end
