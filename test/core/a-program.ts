/** A program as small as can be, for the tests of the frame: what it does is said by its settings. */
import { flag, integer, port, secret, text } from '#core/config/index.ts'
import { runProgram } from '#core/program/index.ts'

await runProgram({
  name: 'example',
  summary: 'Does what its settings say.',
  settings: {
    example: {
      mode: text('SKEIN_EXAMPLE_MODE', 'wait', 'What to do: wait, fail, die, hang, talk'),
      port: port('SKEIN_EXAMPLE_PORT', 1, 'A port'),
      count: integer('SKEIN_EXAMPLE_COUNT', 1, { min: 1, max: 9 }, 'A number'),
      open: flag('SKEIN_EXAMPLE_OPEN', false, 'A flag'),
      token: secret('SKEIN_EXAMPLE_TOKEN', 'A secret'),
    },
  },
  flags: { mode: { setting: 'SKEIN_EXAMPLE_MODE' }, open: { setting: 'SKEIN_EXAMPLE_OPEN', isSwitch: true } },
  ownPrefixes: ['SKEIN_EXAMPLE_'],
  otherSettings: () =>
    Promise.resolve([{ neighbour: text('SKEIN_EXAMPLE_NEIGHBOUR', '', 'Of a program beside this one') }]),
  async run(life, { example: config }, logger) {
    await life.start('part', () =>
      Promise.resolve({
        value: undefined,
        stop: () => {
          process.stdout.write('part stopped\n')
          return config.mode === 'hang' ? new Promise<void>(() => undefined) : Promise.resolve()
        },
      }),
    )
    const alive = setInterval(() => {
      if (config.mode !== 'talk') return
      logger.info('said')
      process.stderr.write('.')
    }, 20)
    life.signal.addEventListener('abort', () => clearInterval(alive))
    logger.info({ config }, 'up')
    if (config.mode === 'fail') throw new Error('nothing works')
    if (config.mode === 'die') void Promise.reject(new Error('a promise nobody waited for'))
    if (config.mode === 'stuck') await new Promise(() => undefined)
  },
})
