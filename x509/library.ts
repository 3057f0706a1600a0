/** The library needs the metadata of its decorators before it is evaluated; importing this file guarantees the order. */
import 'reflect-metadata'

export * from '@peculiar/x509'
