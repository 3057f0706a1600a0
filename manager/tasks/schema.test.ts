// Fields that only the tasks of a workflow have
import { expect, test } from 'vitest'
import { refuseWorkflowFields } from './schema.ts'

test.each(['depends_on', 'run_if'])(
  '%s is refused outside of a workflow when it is set, not when it is empty',
  (field) => {
    expect(() => refuseWorkflowFields({ [field]: ['parent'] })).toThrow(
      expect.objectContaining({ kind: 'unprocessable' }),
    )
    expect(() => refuseWorkflowFields({ [field]: 'always' })).toThrow(`${field} belongs to`)
    for (const nothing of [null, false, '', [], {}])
      expect(() => refuseWorkflowFields({ [field]: nothing })).not.toThrow()
  },
)
