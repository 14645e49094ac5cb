"""Rules over text and data: what a source may not do, whether outputs agree, whose work a profile shows."""
