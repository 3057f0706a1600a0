/** The gate takes samples of what `npm run suites -- fuzz` does in full. */
export const AT_LENGTH = process.env['SKEIN_TEST_AT_LENGTH'] === 'true'

/** All of them at length; else the first and every n-th after it. */
export const sampled = <T>(all: readonly T[], every: number): readonly T[] =>
  AT_LENGTH ? all : all.filter((_one, index) => index % every === 0)
