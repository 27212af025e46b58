# Of what ptxas -v prints, leaves warnings and errors: sed -E -f ptxas_report.sed FILE.ptxas
/^ptxas info +: ([0-9]+ bytes gmem|Compiling entry |Function properties |Used |Compile time )/d
/^ +[0-9]+ bytes (stack frame|cumulative stack)/d
