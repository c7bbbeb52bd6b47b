"""What the features of amaxscope.dlfw_inspect are made of. Imported by files that nvidia-dlfw-inspect loads by their path."""
