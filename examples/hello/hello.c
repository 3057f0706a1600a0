/* Prints its arguments, one line each: a command of WASI preview 1. With --fail it ends with exit code 3. */
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  for (int i = 0; i < argc; i++) {
    if (i > 0 && strcmp(argv[i], "--fail") == 0) {
      fprintf(stderr, "asked to fail\n");
      return 3;
    }
    printf("%s\n", argv[i]);
  }
  return 0;
}
