/** Unpacked versions of a program, one folder each, beside each other: `<program>-<version>-<hash>` (decision 0121). */
export { listVersions, placeVersion, removeOldVersions } from './versions.ts'
