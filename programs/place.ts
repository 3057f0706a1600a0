/**
 * A single file that unpacks itself starts this program: it puts the draft folder in its place. Arguments: the draft, and the folder that
 * it becomes.
 */
import { basename } from 'node:path'
import { placeVersion, removeOldVersions } from '#core/versions/index.ts'

const [draft = '', target = ''] = process.argv.slice(2)
await placeVersion(draft, target)
// What remains of an old version is removed by the next one.
await removeOldVersions(target, /^[a-z-]+(?=-\d)/.exec(basename(target))?.[0] ?? '').catch(() => undefined)
