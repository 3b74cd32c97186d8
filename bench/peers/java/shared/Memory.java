import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** Resident memory of this program, in bytes, as the kernel reports it. */
final class Memory {
    private Memory() {}

    /** The current resident memory; takes milliseconds if it is large, so never read while a clock runs. */
    static long resident() throws IOException {
        return kibibytes("/proc/self/smaps_rollup", "Rss:") * 1024;
    }

    /** The peak of resident memory since the start. */
    static long peak() throws IOException {
        return kibibytes("/proc/self/status", "VmHWM:") * 1024;
    }

    private static long kibibytes(String path, String field) throws IOException {
        for (String line : Files.readAllLines(Path.of(path))) {
            if (line.startsWith(field)) {
                return Long.parseLong(line.substring(field.length()).replace("kB", "").trim());
            }
        }
        throw new IOException(path + " has no field " + field);
    }
}
